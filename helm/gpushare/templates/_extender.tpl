{{/* The extender's container, beside kube-scheduler or alone. */}}

{{- define "gpushare.extenderContainer" -}}
{{- $extender := .Values.extender -}}
{{- $second := include "gpushare.second" . -}}
name: extender
image: {{ include "gpushare.image" (list . $extender.image) }}
imagePullPolicy: {{ include "gpushare.pullPolicy" (list . $extender.image) }}
args:
  {{- if $second }}
  # Any client that reaches the port can bind pods: only the scheduler in this pod may.
  - --host=127.0.0.1
  {{- else }}
  # Until every node has removed it from the Service.
  - --drain-seconds=5
  {{- if $extender.tls.enabled }}
  - --tls-certificates=/etc/gpushare/tls
  - --tls-client-ca=/etc/gpushare/tls/ca.crt
  - {{ printf "--tls-client-names=%s" (include "gpushare.clientNames" .) | quote }}
  {{- end }}
  {{- end }}
  - --port={{ $extender.port }}
  # A bind must not be written after the scheduler's timeout.
  - --bind-deadline={{ mulf 0.8 $extender.httpTimeoutSeconds }}
  {{- if $second }}
  - --percentage-of-nodes={{ .Values.scheduler.percentageOfNodesToScore }}
  {{- end }}
  - --policy={{ $extender.policy }}
  - --topology-policy={{ replace "_" "-" $extender.topologyPolicy }}
  - --candidates={{ int64 $extender.candidates }}
  - --nominate={{ default "off" (include "gpushare.nominate" .) }}
  {{- if $extender.mixHistory }}
  - --mix-history={{ .Release.Namespace }}/{{ include "gpushare.mixHistory" . }}
  {{- end }}
  {{- if and $second (or (include "gpushare.nominate" .) $extender.mixHistory) }}
  # Only beside the scheduler that leads.
  - --nominate-lease={{ .Release.Namespace }}/{{ include "gpushare.name" (list . "scheduler") }}
  {{- end }}
  {{- include "gpushare.schedulerFlags" . | nindent 2 }}
  {{- include "gpushare.extenderFlags" . | nindent 2 }}
  {{- if $extender.claims }}
  - --claims=true
  {{- end }}
  {{- if .Values.topology.staticSets }}
  - --topology-config=/etc/gpushare/topology/sets.json
  {{- end }}
  {{- with $extender.extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - name: metrics
    containerPort: {{ $extender.metricsPort }}
    protocol: TCP
  {{- if not $second }}
  - name: http
    containerPort: {{ $extender.port }}
    protocol: TCP
  {{- end }}
resources:
  {{- include "gpushare.resources" $extender.resources | trim | nindent 2 }}
securityContext:
  {{- include "gpushare.restrictedContainer" . | nindent 2 }}
{{ include "gpushare.extenderProbes" (list "metrics" (include "gpushare.metricsScheme" .)) }}
{{- $tls := include "gpushare.extenderTls" . }}
{{- $metrics := include "gpushare.metricsMount" . }}
{{- if or $tls $metrics .Values.topology.staticSets }}
volumeMounts:
  {{- $metrics | nindent 2 }}
  {{- if $tls }}
  - name: certificate
    mountPath: /etc/gpushare/tls
    readOnly: true
  {{- end }}
  {{- if .Values.topology.staticSets }}
  - name: topology
    mountPath: /etc/gpushare/topology
    readOnly: true
  {{- end }}
{{- end }}
{{- end -}}

{{/* Which pending pods are nominated, empty for none: kube-scheduler evaluates that node first since 1.22. */}}
{{- define "gpushare.nominate" -}}
{{- if and (ne .Values.extender.nominate "off") (semverCompare ">=1.22.0-0" (include "gpushare.schedulerVersion" .)) -}}
{{- .Values.extender.nominate -}}
{{- end -}}
{{- end -}}

{{/* Name of the ConfigMap that keeps the pods from which the extender learns the mix. */}}
{{- define "gpushare.mixHistory" -}}
{{- include "gpushare.name" (list . "extender") }}-mix
{{- end -}}

{{/* "true" where the extender's calls come over the network, and under TLS. */}}
{{- define "gpushare.extenderTls" -}}
{{- if and (not (include "gpushare.second" .)) .Values.extender.tls.enabled -}}true{{- end -}}
{{- end -}}

{{/* Permitted client names: the configured ones, and that of the certificate the chart creates for the scheduler. */}}
{{- define "gpushare.clientNames" -}}
{{- $tls := .Values.extender.tls -}}
{{- $made := list (printf "%s-client" (include "gpushare.name" (list . "extender"))) -}}
{{- concat (ternary list $made (not (empty $tls.clientSecretName))) (default list $tls.clientNames) | uniq | join "," -}}
{{- end -}}

{{/* The schedulers of new pods: the webhook sets them, the extender answers what-if questions by them. */}}
{{- define "gpushare.schedulerFlags" -}}
{{- if include "gpushare.second" . -}}
- --webhook-scheduler={{ .Values.scheduler.name }}
{{- with include "gpushare.burst" . }}
- --burst-scheduler={{ . }}
- --burst-pods={{ include "gpushare.burstPods" $ }}
{{- end }}
{{- else -}}
# Every scheduler calls the extender: pods keep the one they name.
- --webhook-scheduler=
{{- end }}
{{- end -}}

{{/* Flags of every process of the extender's image. */}}
{{- define "gpushare.extenderFlags" -}}
- --metrics-port={{ .Values.extender.metricsPort }}
{{- if .Values.monitoring.tls.enabled }}
- --metrics-certificates={{ include "gpushare.metricsFolder" . }}
{{- end }}
- --log-level={{ .Values.extender.logLevel }}
- --domain={{ .Values.resourceDomain }}
- --annotation-prefix={{ .Values.annotationPrefix }}
{{- if .Values.unhealthyConfigMaps }}
- --unhealthy-configmaps=true
{{- end }}
{{- end -}}

{{/*
How often the startup probe may fail: (list "HTTPS" 60). A TLS port listens once its certificate can be used; a
restart before that helps nothing, and stops what the program does already. So it gets an hour.
*/}}
{{- define "gpushare.startupFailures" -}}
{{- ternary 1800 (index . 1) (eq (index . 0) "HTTPS") -}}
{{- end -}}

{{/* The three probes, at a port that requires no client certificate: (list "port" "HTTPS"). */}}
{{- define "gpushare.extenderProbes" -}}
startupProbe:
  httpGet: {scheme: {{ index . 1 }}, path: /healthz, port: {{ index . 0 }}}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: {{ include "gpushare.startupFailures" (list (index . 1) 60) }}
livenessProbe:
  httpGet: {scheme: {{ index . 1 }}, path: /healthz, port: {{ index . 0 }}}
  periodSeconds: 20
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet: {scheme: {{ index . 1 }}, path: /readyz, port: {{ index . 0 }}}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 10
{{- end -}}
